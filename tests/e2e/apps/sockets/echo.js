// Sends back what it is sent, with its release before it.
const { createServer } = require('node:http')
const { WebSocketServer } = require('ws')

const { PORT, HOST, RELEASE } = process.env
const server = createServer((ask, answer) => answer.end(RELEASE))
const sockets = new WebSocketServer({ server })
sockets.on('connection', (socket) => socket.on('message', (text) => socket.send(`${RELEASE}: ${text}`)))
server.listen(Number(PORT), HOST)
process.on('SIGTERM', () => {
  for (const socket of sockets.clients) socket.close(1012, 'another release takes over')
  server.close(() => process.exit(0))
})
