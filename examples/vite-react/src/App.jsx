import { useState } from 'react';

const harbor = import.meta.env.VITE_HARBOR ?? 'the harbor';

export function App() {
  const [crossings, setCrossings] = useState(0);
  return (
    <main>
      <h1>Crossings from {harbor}</h1>
      <button onClick={() => setCrossings(crossings + 1)}>{crossings} crossings</button>
    </main>
  );
}
