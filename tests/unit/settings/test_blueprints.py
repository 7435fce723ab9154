"""Blueprints in the settings: read from YAML or a variable, and refused with the place of the mistake."""

from pathlib import Path

import pytest

from dlq_handler.settings.keys import ConfigError
from dlq_handler.settings.loader import load

SHOP = """
dlq_handler:
  blueprints:
    shop:
      params: [region]
      flow:
        - name: shop.{region}.orders
          exchange: shop
          keys: orders.{region}
          ttl_ms: 60000
          contents: archive
"""


def test_a_blueprint_is_read_from_a_file_beside_the_shipped_one(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(SHOP)
    blueprints = load(file, {}).settings.flow_blueprints
    assert sorted(blueprints) == ["shop", "worker"]
    [queue] = blueprints["shop"].expand({"region": "eu"}).flow
    assert (queue.name, queue.own_keys, queue.ttl_ms) == ("shop.eu.orders", ("orders.eu",), 60_000)


def test_a_blueprint_is_read_from_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("")
    json = '{"w": {"params": ["a"], "flow": [{"name": "q.{a}", "exchange": "e", "keys": ["k"]}]}}'
    settings = load(file, {"ATTUNE__DLQ_HANDLER__BLUEPRINTS": json}).settings
    assert settings.flow_blueprints["w"].expand({"a": "1"}).flow[0].broadcast_keys == ("k",)


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        ("exchnage", "exchange", r"unknown key flow\.0\.exchnage.*'shop'"),
        ("orders.{area}", "orders.{region}", "unknown parameter 'area'"),
        ("name: shop.orders", "name: shop.{region}.orders", "has no parameter in its name"),
        ("contents: keep", "contents: archive", r"flow\.0\.contents"),
        ("ttl_ms: 0", "ttl_ms: 60000", r"flow\.0\.ttl_ms"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, wrong: str, right: str, problem: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(SHOP.replace(right, wrong))
    with pytest.raises(ConfigError, match=problem) as refused:
        load(file, {})
    assert f"{file}:3: dlq_handler.blueprints" in str(refused.value)


def test_nonsense_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("")
    for nonsense in ("7", "[]", "{", '{"a": 1}', '{"a": null}', '{"": {}}'):
        with pytest.raises(ConfigError, match="blueprint"):
            load(file, {"ATTUNE__DLQ_HANDLER__BLUEPRINTS": nonsense})
