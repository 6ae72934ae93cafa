"""The rights on MySQL that docs/operations.md names, as its readers would grant them."""

import re

from tests.services.daemon import ROOT

DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def grants(user: str, database: str, name: str | None = None) -> list[str]:
    """The statements that grant what the document grants to `user`, on that database, to whoever has the name."""
    (block,) = re.findall(r"## Rights on MySQL.*?```sql\n(.*?)```", DOCUMENT, re.DOTALL)
    found = [line.rstrip(";") for line in block.splitlines() if f"TO '{user}'@" in line]
    assert found, f"the document grants nothing to {user}"
    return [line.replace(f"'{user}'@", f"'{name or user}'@").replace(" app.", f" {database}.") for line in found]
