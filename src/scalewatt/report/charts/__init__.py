"""Charts of the report: its figures' tables as Vega-Lite, which answers mouse and keyboard."""
