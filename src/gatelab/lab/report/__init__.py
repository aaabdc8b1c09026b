"""Reports: turn findings into one HTML file and tables."""

from gatelab.lab.report.write import write_report

__all__ = ["write_report"]
