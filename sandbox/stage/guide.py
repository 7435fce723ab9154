"""What `./run up` prints at its end: where everything is, its times, and what to break."""

from urllib.parse import unquote, urlsplit

from sandbox.stage.parts import PARTS
from sandbox.stage.state import State
from sandbox.times import Times, describe_briefly

GUIDE = """
{times}

where everything is
  api          {api}    Authorization: Bearer {api_token}
  RabbitMQ     {management}    user {user}, password {password}
               {amqp}
  PostgreSQL   {database}    schema attune
  sidecar      {ops}/readyz  {ops}/metrics
  dashboard    {ui}/    API: {ui}/api/v1/diagnosis
{settings}
give it work
  curl {api}/api/v1/executions/execute -H 'Authorization: Bearer {api_token}' -H 'Content-Type: application/json' \\
       -d '{{"action_ref": "core.sleep", "parameters": {{"seconds": 3}}}}'
break something
  ./run break worker-python               # SIGKILL
  ./run break worker-shell --how hang     # SIGSTOP; or stop: SIGTERM, in good order
  ./run break broker && ./run repair broker # parts: {parts}
see the result
  ./run status
  ./run psql -c "SELECT id, status, worker, result->>'error' AS error FROM execution ORDER BY id DESC LIMIT 10"
  ./run rabbitmq list_queues name messages consumers
  ./run dlq-handler letters list
  ./run dlq-handler doctor                # can dlq-handler process dead letters?
  ./run dlq-handler canary run            # send canaries through the dead-letter route, and time each stage
  ./run logs sidecar -f
end it
  ./run down"""


def guide(state: State) -> str:
    broker = urlsplit(state.urls["amqp"])
    return GUIDE.format(
        **state.urls,
        settings=f"  settings     {state.config}, but for addresses and times\n" if state.config else "",
        user=unquote(broker.username or ""),
        password=unquote(broker.password or ""),
        times="\n".join(describe_briefly(Times.named(state.times))),
        parts=", ".join(PARTS),
    )
