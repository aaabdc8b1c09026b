"""The drawing of the house and the list of public names say what the code says."""

import inspect
import re
from importlib import import_module

import pytest
from tools import api, house

BUDGET = 164  # names that the packages export, all together
PERMITTED_DRIFT = 0.1  # of a room's lines, before the drawing must be made again


def test_the_drawing_shows_the_rooms_as_they_are():
    rooms = house.read_rooms()
    drawn = re.findall(r'data-room="(\w+)" data-lines="(\d+)" data-uses="([\w ]*)"', house.DRAWING.read_text())
    assert {name: frozenset(uses.split()) for name, _, uses in drawn} == {
        name: room.uses for name, room in rooms.items()
    }, "run `make house`"
    for name, lines, _ in drawn:
        assert abs(int(lines) - rooms[name].lines) <= PERMITTED_DRIFT * rooms[name].lines, f"{name}: run `make house`"


def test_every_import_stands_on_a_lower_floor():
    rooms = house.read_rooms()
    heights = house.floors(rooms)
    assert all(heights[other] < heights[name] for name, room in rooms.items() for other in room.uses)


def test_a_circle_of_imports_has_no_floors():
    one, two = (house.Room(name, {"": 1}, frozenset({other})) for name, other in (("one", "two"), ("two", "one")))
    with pytest.raises(ValueError, match="a circle of imports: one → two → one"):
        house.floors({"one": one, "two": two})


def test_an_import_that_others_imply_is_not_drawn():
    rooms = {
        "top": house.Room("top", {"": 1}, frozenset({"middle", "bottom"})),
        "middle": house.Room("middle", {"": 1}, frozenset({"bottom"})),
        "bottom": house.Room("bottom", {"": 1}, frozenset()),
    }
    assert house.needed_imports(rooms) == [("middle", "bottom"), ("top", "middle")]


def test_the_list_of_names_is_current():
    assert api.PAGE.read_text() == api.page(), "run `make api`"


def test_public_names_are_few_and_explained():
    modules = {package: import_module(f"gatelab.{package}") for package in api.packages()}
    names = [(package, name) for package in modules for name in api.exported(package)]
    assert len(names) <= BUDGET
    assert [f"{package}.{name}" for package, name in names if not api.purpose(getattr(modules[package], name))] == []


def test_public_functions_say_what_they_take_and_return():
    """A function with two or more parameters has Args, Returns and an example that runs."""
    lacking = []
    for package in api.packages():
        module = import_module(f"gatelab.{package}")
        for name in api.exported(package):
            held = getattr(module, name)
            if inspect.isfunction(held) and len(inspect.signature(held).parameters) > 1:
                parts = [part for part in ("Args:", "Returns:", ">>>") if part not in (held.__doc__ or "")]
                lacking += [f"{package}.{name}: {part}" for part in parts]
    assert lacking == []


def test_no_module_is_hidden_by_a_name_of_its_package():
    for package in api.packages():
        module = import_module(f"gatelab.{package}")
        if not hasattr(module, "__path__"):
            continue
        files = {path.stem for path in (house.SOURCE / package.replace(".", "/")).iterdir()}
        assert not files & {name for name in api.exported(package) if not inspect.ismodule(getattr(module, name))}


def test_public_class_names_are_unique():
    found: dict[str, str] = {}
    for path in sorted(house.SOURCE.rglob("*.py")):
        for name in re.findall(r"^class ([A-Za-z]\w+)", path.read_text(), flags=re.MULTILINE):
            assert name not in found, f"{name}: {found[name]} and {path.name}"
            found[name] = path.name
