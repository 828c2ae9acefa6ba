// A web action: the query, the form or the JSON body are in `params`.
exports.main = async (params) => {
  const metres = Number(params.metres);
  if (!Number.isFinite(metres)) {
    return { statusCode: 400, body: { error: 'the parameter metres should be a number' } };
  }
  console.log('converted', metres);
  return { statusCode: 200, body: { metres, fathoms: Math.round((metres / 1.8288) * 100) / 100 } };
};
