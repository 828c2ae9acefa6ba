const express = require('express');

const app = express();
const ships = new Map([['ada', { name: 'Ada', berth: 7 }]]);

app.use(express.json());

app.get('/', (request, response) => {
  response.json({ harbor: process.env.HARBOR ?? 'nameless', ships: ships.size });
});

app.get('/ships/:id', (request, response) => {
  const ship = ships.get(request.params.id);
  if (!ship) {
    response.status(404).json({ error: 'there is no such ship' });
    return;
  }
  response.json(ship);
});

app.put('/ships/:id', (request, response) => {
  ships.set(request.params.id, request.body);
  response.status(201).json(request.body);
});

const server = app.listen(process.env.PORT ?? 3000, () => console.log('listening'));

// The platform sends SIGTERM when another release has taken over: finish open requests, then exit.
process.on('SIGTERM', () => server.close());
