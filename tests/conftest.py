from hypothesis import HealthCheck, settings

# What counts is whether a property holds, not how long an example takes on a busy machine.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
