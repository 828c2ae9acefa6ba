"""Who visits a project: figures by the hour, made of the gateway's access log, without cookies or stored addresses."""
