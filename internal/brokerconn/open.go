package brokerconn

import (
	"context"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/backlog/kedascaler"
	"github.com/yardmaster/yardmaster/internal/backlog/prometheus"
	"github.com/yardmaster/yardmaster/internal/backlog/rabbitmq"
	"github.com/yardmaster/yardmaster/internal/backlog/redis"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// open connects to the one place that a source names.
func open(ctx context.Context, credentials *broker.Credentials, namespace string, of *v1alpha1.Source) (backlog.Source, error) {
	switch {
	case of.RedisList != nil:
		return redis.NewListSource(ctx, *credentials, of.RedisList.Key)
	case of.RedisStream != nil:
		return redis.NewStreamSource(ctx, *credentials, of.RedisStream.Key, of.RedisStream.Group)
	case of.RabbitMQ != nil:
		vhost := of.RabbitMQ.VHost
		if vhost == "" {
			vhost = "/" // as the API server's default
		}
		return rabbitmq.NewQueueSource(*credentials, vhost, of.RabbitMQ.Queue)
	case of.Prometheus != nil:
		q := of.Prometheus
		return prometheus.NewQuerySource(*credentials, prometheus.Queries{Backlog: q.Query, InFlight: q.InFlightQuery, TotalArrivals: q.ArrivalsQuery})
	case of.External != nil:
		return kedascaler.New(kedascaler.ScalerOptions{
			Address: of.External.Address, Namespace: namespace, Metadata: of.External.Metadata, TLS: credentials.TLS,
		})
	}
	return nil, broker.Errorf(broker.ClassInvalid, "source names no place")
}
