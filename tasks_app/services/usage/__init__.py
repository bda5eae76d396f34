"""What work costs and how long people wait: figures of a period, forecasts, metrics for Prometheus."""
