# docker build -t walsh . && docker run --rm -v walsh:/home/walsh walsh demo
# Untested: no build of this file has been seen. The job `container` of CI builds and runs it where docker is at hand.
# The volume has the configuration and the state of `walsh read`. A list: -v "$PWD:/lists:ro" -w /lists
FROM python:3.13-slim
COPY . /src
RUN pip install --no-cache-dir /src && rm -r /src && useradd --create-home --uid 1000 walsh
USER walsh
WORKDIR /home/walsh
VOLUME /home/walsh
ENTRYPOINT ["walsh"]
