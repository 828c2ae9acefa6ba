// Renders every page on the server, and gives the browser the files that were built for it.
import { createServer } from 'node:http'
import { readFileSync, readdirSync } from 'node:fs'
import { render } from './dist/server/entry-server.js'

const page = readFileSync('dist/client/index.html', 'utf8')
const assets = new Map(readdirSync('dist/client/assets').map((name) => [`/assets/${name}`, name]))

const server = createServer((ask, answer) => {
  const name = assets.get(ask.url)
  answer.setHeader('Content-Type', name ? 'text/javascript' : 'text/html; charset=utf-8')
  answer.end(name ? readFileSync(`dist/client/assets/${name}`) : page.replace('<!--app-->', render(ask.url)))
})
server.listen(Number(process.env.PORT), process.env.HOST)
