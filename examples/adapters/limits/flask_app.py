"""Flask-Limiter on redis-rl.

    flask --app 'flask_app:create_app("redis-rl://127.0.0.1:6379")' run
    curl -i http://127.0.0.1:5000/
"""

from typing import Any

import limits_redis_rl  # noqa: F401 - registers redis-rl:// and token-bucket
from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address


def create_app(storage_uri: str, **options: Any) -> Flask:
    app = Flask(__name__)
    limiter = Limiter(
        get_remote_address,
        app=app,
        storage_uri=storage_uri,
        **{
            "strategy": "token-bucket",
            "headers_enabled": True,
            # In seconds, Flask-Limiter cuts off the fraction: who waits that long may come too early.
            "retry_after": "http-date",
            **options,
        },
    )

    @app.get("/")
    @limiter.limit("3/minute")
    def hello() -> str:
        return "hello"

    return app
