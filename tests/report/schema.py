"""A validator for the part of JSON Schema that docs/stats.schema.json uses; anything else in a schema is an error."""

KNOWN = {"$schema", "$id", "title", "description", "type", "required", "properties", "additionalProperties", "items",
         "minimum", "maximum", "enum", "pattern", "propertyNames"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def faults(value, schema, place="report"):
    """One line for each place where value is not as the schema says."""
    import re
    found = [f"{place}: schema word {word} is not known" for word in schema if word not in KNOWN]
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
        return found + [f"{place}: not of type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is not one of {schema['enum']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{place}: {value} is below {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        found.append(f"{place}: {value} is above {schema['maximum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{place}: {value!r} does not fit {schema['pattern']}")
    if isinstance(value, dict):
        found += object_faults(value, schema, place)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += faults(item, schema["items"], f"{place}[{number}]")
    return found


def object_faults(value, schema, place):
    """The part that concerns objects."""
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    found = [f"{place}: {name} is missing" for name in schema.get("required", []) if name not in value]
    for name, item in value.items():
        if "propertyNames" in schema:
            found += faults(name, schema["propertyNames"], f"{place}: the name {name}")
        if name in properties:
            found += faults(item, properties[name], f"{place}.{name}")
        elif more is False:
            found.append(f"{place}: {name} is not in the schema")
        elif isinstance(more, dict):
            found += faults(item, more, f"{place}.{name}")
    return found
