"""Files of a new function."""

from __future__ import annotations

from typing import Final

NODEJS: Final = """// Called for each request. `params` has the fields of the query and of a JSON or form body.
exports.main = async (params) => {
  const name = params.name || 'world';
  console.log(`greeting ${name}`);
  return { statusCode: 200, body: { hello: name } };
};
"""
PYTHON: Final = '''def main(params):
    """Called for each request. `params` has the fields of the query and of a JSON or form body."""
    name = params.get("name", "world")
    print(f"greeting {name}")
    return {"statusCode": 200, "body": {"hello": name}}
'''
PACKAGE: Final = """{{
  "name": "{name}",
  "private": true,
  "main": "index.js",
  "dependencies": {{}}
}}
"""
README: Final = """# {name}

A function of Moorage. `{main}` has its code{dependencies}.

    moorage functions dev        # run it here; a saved file is loaded at once
    moorage functions deploy     # deploy it and print its address
    moorage functions invoke {name} -p name=Ada
    moorage functions logs -f {name}

Variables for this machine go into `.env`, which is never sent; `moorage functions env` and `moorage functions secrets`
set those of the platform.
"""
IGNORED: Final = {
    "nodejs": "node_modules/\n.env\n.env.*\n",
    "python": "packages/\n.venv/\n__pycache__/\n.env\n.env.*\n",
}


def files_of(name: str, language: str) -> dict[str, str]:
    """Return the text of each file of a new function."""
    if language == "nodejs":
        main, depends = "index.js", "package.json"
        files = {main: NODEJS, depends: PACKAGE.format(name=name)}
    else:
        main, depends = "main.py", "requirements.txt"
        files = {main: PYTHON, depends: ""}
    dependencies = f"; `{depends}` lists packages, which the platform installs"
    readme = README.format(name=name, main=main, dependencies=dependencies)
    return {**files, "README.md": readme, ".gitignore": IGNORED[language]}
