package hostile

import (
	"net"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Source is a server from which the operator reads the backlog of a WorkerPool.
type Source struct {
	// Scheme of the URL in the Secret; empty if the spec has the address.
	Scheme string
	Attack Attack
	// spec returns the source with its Secret, or its address.
	spec func(access v1alpha1.BrokerAccess, address string) v1alpha1.Source
}

// Spec returns the source of a WorkerPool: its URL is the value of the key url of a Secret.
func (s Source) Spec(secret, address string) v1alpha1.Source {
	var access v1alpha1.BrokerAccess
	access.URLSecretRef.Name = secret
	return s.spec(access, address)
}

// ListSource reads a list in Redis.
func ListSource(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
	return v1alpha1.Source{Redis: &v1alpha1.RedisSource{BrokerAccess: access, Key: "jobs"}}
}

// RabbitMQSource reads a queue in RabbitMQ.
func RabbitMQSource(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
	return v1alpha1.Source{RabbitMQ: &v1alpha1.RabbitMQSource{BrokerAccess: access, Queue: "jobs"}}
}

// PrometheusSource queries Prometheus.
func PrometheusSource(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
	return v1alpha1.Source{Prometheus: &v1alpha1.PrometheusSource{BrokerAccess: access, Query: "q"}}
}

// ScalerSource reads from a KEDA scaler.
func ScalerSource(_ v1alpha1.BrokerAccess, address string) v1alpha1.Source {
	return v1alpha1.Source{External: &v1alpha1.ExternalSource{Address: address}}
}

// NATSSource reads a consumer of a hostile broker.
func NATSSource(b Broker) Source {
	return Source{b.Scheme + "://", b.Attack, func(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
		return v1alpha1.Source{NATSJetStream: &v1alpha1.NATSJetStreamSource{BrokerAccess: access, Stream: "orders", Consumer: "billing"}}
	}}
}

// Sources returns hostile sources of a backlog.
func Sources() map[string]Source {
	list := func(attack Attack) Source {
		return Source{"redis://", ServeRedis(func(conn net.Conn, command string) {
			if command == "llen" {
				attack(conn)
			}
		}), ListSource}
	}
	rabbit := func(attack Attack) Source { return Source{"http://", AfterFirstRequest(attack), RabbitMQSource} }
	query := func(attack Attack) Source { return Source{"http://", AfterFirstRequest(attack), PrometheusSource} }
	scaler := func(attack Attack) Source { return Source{"", AfterFirstRequest(attack), ScalerSource} }
	const ok = "HTTP/1.1 200 OK\r\n"
	json := func(start string) Attack { return SendThenFlood(ok+"Content-Length: 600000000\r\n\r\n"+start, "{},") }
	redirect := Send("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n\r\n")
	return map[string]Source{
		"LLEN answers with 600 MB":          list(SendThenFlood("$600000000\r\n", "x")),
		"LLEN dribbles":                     list(SendThenDribble("", "$1000\r\n"+strings.Repeat("x", 1000))),
		"RabbitMQ answers with 600 MB":      rabbit(json(`{"vhost":"/","x":[`)),
		"RabbitMQ redirects to metadata":    rabbit(redirect),
		"Prometheus answers with 600 MB":    query(json(`{"status":"success","data":{"resultType":"vector","result":[`)),
		"Prometheus answers without an end": query(SendThenFlood(ok+"Transfer-Encoding: chunked\r\n\r\n", "3\r\n{},\r\n")),
		"Prometheus redirects to metadata":  query(redirect),
		"a header of 600 MB":                query(SendThenFlood(ok, "A: b\r\n")),
		"a response that dribbles":          query(SendThenDribble("", ok+"\r\n"+strings.Repeat("x", 1000))),
		"gRPC: endless settings":            scaler(SendThenFlood("", "\x00\x00\x00\x04\x00\x00\x00\x00\x00")),
		"gRPC: endless pings":               scaler(SendThenFlood("\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")),
		"gRPC: data without a request":      scaler(SendThenFlood("\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x40\x00\x00\x00\x00\x00\x00\x01"+strings.Repeat("x", 1<<14))),
		"gRPC: a frame that dribbles":       scaler(SendThenDribble("", "\x00\x40\x00\x04\x00\x00\x00\x00\x00"+strings.Repeat("x", 1000))),
	}
}
