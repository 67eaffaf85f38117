"""Configuration of Sphinx for the pages that build.py puts together."""

from ccenv.base.provenance import VERSION

project = "ccenv"
author = "ccenv contributors"
copyright = "ccenv contributors, MIT licence"
release = version = VERSION

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# A heading may come once in a page and again in another one.
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Reference", "Deviation", "Deviations"]
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"ccenv {VERSION}"
html_static_path = ["static"]
html_css_files = ["ccenv.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "monokai"
