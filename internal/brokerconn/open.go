package brokerconn

import (
	"context"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/backlog/kedascaler"
	"github.com/yardmaster/yardmaster/internal/backlog/prometheus"
	"github.com/yardmaster/yardmaster/internal/backlog/rabbitmq"
	"github.com/yardmaster/yardmaster/internal/backlog/redis"
	"github.com/yardmaster/yardmaster/internal/backlog/source"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// open connects to the one place that a source names.
func open(ctx context.Context, access *Access, namespace string, of *v1alpha1.Source) (source.Source, error) {
	by := sourceAccess(access)
	switch {
	case of.RedisList != nil:
		return orNone(redis.NewList(ctx, by, of.RedisList.Key))
	case of.RedisStream != nil:
		return orNone(redis.NewStream(ctx, by, of.RedisStream.Key, of.RedisStream.Group))
	case of.RabbitMQ != nil:
		vhost := of.RabbitMQ.VHost
		if vhost == "" {
			vhost = "/" // as the API server's default
		}
		return orNone(rabbitmq.NewQueue(by, vhost, of.RabbitMQ.Queue))
	case of.Prometheus != nil:
		q := of.Prometheus
		return orNone(prometheus.NewServer(by, prometheus.Queries{Waiting: q.Query, InFlight: q.InFlightQuery, Arrivals: q.ArrivalsQuery}))
	case of.External != nil:
		return orNone(kedascaler.New(kedascaler.Options{
			Address: of.External.Address, Namespace: namespace, Metadata: of.External.Metadata, TLS: by.TLS,
		}))
	}
	return nil, broker.Errorf(broker.ClassInvalid, "source names no place")
}

// orNone is a source, or else nothing rather than a source that is nil.
func orNone[S source.Source](connected S, err error) (source.Source, error) {
	if err != nil {
		return nil, err
	}
	return connected, nil
}

// sourceAccess is what the Secrets say, as sources and asynq are reached by it.
func sourceAccess(a *Access) source.Access {
	return source.Access{URL: a.URL, Username: a.Username, Password: a.Password, Token: a.Token, TLS: a.tls(), Name: clientName}
}
