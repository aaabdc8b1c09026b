"""The templates of all pages."""

from jinja2 import Environment, PackageLoader

PAGES = Environment(loader=PackageLoader("gatelab.lab.report", "templates"), autoescape=True, trim_blocks=True)
