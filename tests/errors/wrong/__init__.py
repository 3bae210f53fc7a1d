"""Wrong calls that users are likely to make, by what they call. Importing this package registers all of them."""

from tests.errors.wrong import building, calling, files, hardware, layers, models, modules, plugins, shapes  # noqa: F401
