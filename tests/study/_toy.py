"""The task of studies that tests make up."""

MARGIN = 1.0
TASK = {
    "name": "toy",
    "terms": ["a", "b"],
    "metric": "score",
    "direction": "maximize",
    "select": "validation",
    "report": "test",
    "unit": "%",
    "margin": MARGIN,
    "about": "",
    "settings": {},
    "identity": "id",
}
