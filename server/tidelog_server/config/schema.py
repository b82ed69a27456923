"""The JSON Schema of a configuration file, for editors and other programs that check one.

It has what the models have: names, types, bounds, defaults and descriptions. Rules between settings are not in it.
"""

from typing import Any, Final

from pydantic import ByteSize

from tidelog_server.config.settings import SECTIONS, Section

# The newest version that the editors' extensions for TOML document.
_VERSION: Final = "http://json-schema.org/draft-07/schema#"
_BOUNDS: Final = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def settings_schema() -> dict[str, Any]:
    """Return the schema. Why without references: Taplo ignores what stands beside one."""
    return {
        "$schema": _VERSION,
        "title": "Settings of a Tidelog server",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _section_schema(model) for name, model in SECTIONS.items()},
    }


def text_of_section(model: type[Section]) -> str:
    """Return what a section is about: its docstring without the name."""
    return (model.__doc__ or "").replace("``", "`").partition(": ")[2]


def _section_schema(model: type[Section]) -> dict[str, Any]:
    schema = model.model_json_schema()
    del schema["title"]
    schema["description"] = text_of_section(model)
    for name, field in model.model_fields.items():
        setting = schema["properties"][name]
        del setting["title"]
        if field.annotation is ByteSize:
            # pydantic does not know that bounds are those of a size as a number.
            setting["anyOf"][0] |= {
                bound: getattr(each, of_pydantic)
                for each in field.metadata
                for of_pydantic, bound in _BOUNDS.items()
                if hasattr(each, of_pydantic)
            }
    return schema
