"""Instructions that make a layer: COPY, ADD, RUN and WORKDIR."""
