/** Templates of the first-run guide. Small on purpose: a person reads all of it in a minute. */

export const STATIC_PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Hello</title>
<style>
  body { margin: 0; min-height: 100vh; display: grid; place-content: center; font: 18px/1.5 system-ui; text-align: center; }
  h1 { font-size: 2.5rem; margin: 0; }
</style>
<h1>It is live</h1>
<p>Change this page, and deploy it again.</p>
</html>
`;

export const FUNCTION_CODE = `def main(params):
    name = params.get("name", "world")
    return {"statusCode": 200, "body": f"Hello, {name}"}
`;

const EXPRESS = `mkdir hello-express && cd hello-express && git init -b main
cat > package.json <<'END'
{ "name": "hello-express", "scripts": { "start": "node server.js" }, "dependencies": { "express": "^5" } }
END
cat > server.js <<'END'
const app = require("express")();
app.get("/", (request, response) => response.send("Hello from Express"));
app.listen(process.env.PORT);
END`;

const FASTAPI = `mkdir hello-fastapi && cd hello-fastapi && git init -b main
printf 'fastapi\\nuvicorn\\n' > requirements.txt
cat > main.py <<'END'
from fastapi import FastAPI

app = FastAPI()


@app.get("/")
def read_root():
    return {"hello": "FastAPI"}
END`;

export type GitTemplate = "site" | "express" | "fastapi";

/** The lines that bring a repository online, with the address of this platform and a token. */
export function gitLines(template: GitTemplate, owner: string, token: string): string {
  const name = { site: "my-site", express: "hello-express", fastapi: "hello-fastapi" }[template];
  const files = { site: "cd my-site", express: EXPRESS, fastapi: FASTAPI }[template];
  const remote = `${location.protocol}//git:${token}@${location.host}/git/${owner}/${name}.git`;
  const commit = template === "site" ? "" : 'git add . && git commit -m "first version"\n';
  return `${files}\n${commit}git remote add live ${remote}\ngit push live main`;
}

/** The same with the command line, for a folder that is there already. */
export function cliLines(template: GitTemplate, token: string): string {
  const files = { site: "cd my-site", express: EXPRESS, fastapi: FASTAPI }[template];
  return `${files}\nprintf %s '${token}' | moorage login ${location.origin} --token\nmoorage deploy`;
}
