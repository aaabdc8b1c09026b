"""beartype, with a whole number where a real one is asked for being welcome, as in Python itself."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
