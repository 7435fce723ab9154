"""Lists in Attune's shape: {items, pagination}."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Path, Query

RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    page: int
    page_size: int

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.page_size

    def of(self, items: list[dict[str, Any]], total: int) -> dict[str, Any]:
        pages = -(-total // self.page_size)
        return {
            "items": items,
            "pagination": {
                "page": self.page,
                "page_size": self.page_size,
                "total_items": total,
                "total_pages": pages,
                "has_previous": self.page > 1,
                "has_next": self.page < pages,
            },
        }


def asked_page(
    page: Annotated[int, Query(ge=1)] = 1, page_size: Annotated[int, Query(ge=1, le=100)] = 50
) -> Page:
    return Page(page=page, page_size=page_size)
