// A small API: it says what it was told, and finishes what it has begun before it ends.
const express = require('express')

const app = express()
const { PORT, HOST, GREETING, API_KEY, npm_package_version: version } = process.env
let served = 0

console.log(`the key is ${API_KEY}`)
app.use((ask, answer, next) => {
  console.log(`${ask.method} ${ask.path} has begun`)
  answer.on('finish', () => { served += 1 })
  next()
})
app.use(express.json())
app.get('/', (ask, answer) => answer.json({ greeting: GREETING, version }))
app.get('/key', (ask, answer) => answer.json({ key: API_KEY }))
app.post('/sum', (ask, answer) => answer.json({ greeting: GREETING, sum: ask.body.numbers.reduce((a, b) => a + b) }))

const server = app.listen(Number(PORT), HOST)
server.keepAliveTimeout = 150_000 // longer than the gateway keeps a connection for the next request
process.on('SIGTERM', () => {
  console.log('asked to stop')
  server.close(() => { console.log(`closed, ${served > 0 ? 'having served' : 'unused'}`); process.exit(0) })
  server.closeIdleConnections()
})
