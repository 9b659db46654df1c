// Package hostile contains peers that attack the operator: brokers, backlog sources and workers that answer its requests, and Pods that
// connect to its ports. Unit tests run them in their own process, the end-to-end tests in Pods.
package hostile

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// HugeSize is the size of a reply that is larger than the operator's memory.
const HugeSize = 600 << 20

// Attack is what a server does with a connection. It ends when its peer closes the connection.
type Attack func(net.Conn)

// All returns the attacks of all brokers and sources.
func All() map[string]Attack {
	all := map[string]Attack{}
	for title, broker := range Brokers() {
		all[title] = broker.Attack
	}
	for title, source := range Sources() {
		all[title] = source.Attack
	}
	return all
}

const firstPort = 20000

// Port returns the port at which the Pod of the end-to-end tests serves an attack of All.
func Port(title string) int {
	i, found := slices.BinarySearch(slices.Sorted(maps.Keys(All())), title)
	if !found {
		panic("unknown attack " + title)
	}
	return firstPort + i
}

// Serve runs an attack on each connection of the listener.
func Serve(listener net.Listener, attack Attack) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			attack(conn)
		}()
	}
}

// AfterRequest waits for bytes from the client.
func AfterRequest(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

// Send sends a text and keeps the connection open.
func Send(text string) Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// SendAndClose sends a text and closes the connection.
func SendAndClose(text string) Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// SendThenFlood sends a text once, and another one again and again, up to HugeSize bytes.
func SendThenFlood(start, text string) Attack {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, start)
		block := []byte(strings.Repeat(text, 1+64<<10/len(text)))
		for sent := 0; sent < HugeSize && err == nil; sent += len(block) {
			_, err = conn.Write(block)
		}
	}
}

// SendThenDribble sends a text once, and the bytes of another one slowly, for longer than any timeout.
func SendThenDribble(start, text string) Attack {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, start)
		for i := 0; err == nil; i++ {
			_, err = conn.Write([]byte{text[i%len(text)]})
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// Broker is a server that the URL of a Queue's broker names.
type Broker struct {
	Engine v1alpha1.Engine
	Scheme string
	Attack Attack
}

// NATSInfo is the first line of a NATS server.
const NATSInfo = `INFO {"server_id":"A","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}` + "\r\n"

const tlsInfo = `INFO {"server_id":"A","version":"2.12.0","tls_required":true}` + "\r\n"

// AsNATS completes the handshake and then waits for the first request.
func AsNATS(attack Attack) Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, NATSInfo)
		reader := bufio.NewReader(conn)
		for {
			line, err := reader.ReadString('\n')
			switch {
			case err != nil:
				return
			case strings.HasPrefix(line, "PING"):
				_, _ = io.WriteString(conn, "PONG\r\n")
			case strings.HasPrefix(line, "SUB"):
				go func() { _, _ = io.Copy(io.Discard, reader) }()
				attack(conn)
				return
			}
		}
	}
}

// AfterFirstRequest replies to the first request with an attack.
func AfterFirstRequest(attack Attack) Attack {
	return func(conn net.Conn) {
		AfterRequest(conn)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		attack(conn)
	}
}

// ServeRedis replies to the commands that open a connection, and leaves the others to reply.
func ServeRedis(reply func(conn net.Conn, command string)) Attack {
	return func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		for {
			line, err := reader.ReadString('\n')
			if err != nil || line == "" {
				return
			}
			parts, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // "*2" starts a command of two parts
			var command string
			for part := range parts {
				_, _ = reader.ReadString('\n')
				if line, err = reader.ReadString('\n'); err != nil {
					return
				}
				if part == 0 {
					command = strings.ToLower(strings.TrimSpace(line))
				}
			}
			switch command {
			case "hello":
				_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
			case "client", "ping":
				_, _ = io.WriteString(conn, "+OK\r\n")
			default:
				reply(conn, command)
			}
		}
	}
}

// Brokers returns hostile brokers.
func Brokers() map[string]Broker {
	nats := func(attack Attack) Broker { return Broker{v1alpha1.EngineNATS, "nats", attack} }
	redis := func(attack Attack) Broker { return Broker{v1alpha1.EngineAsynq, "redis", AfterFirstRequest(attack)} }
	manyURLs := `INFO {"server_id":"A","version":"2.12.0","connect_urls":["` + strings.Repeat(`10.0.0.1:4222","`, 100_000) + `10.0.0.2:4222"]}` + "\r\n"
	return map[string]Broker{
		"NATS: a message of 600 MB":                    nats(AsNATS(SendThenFlood("MSG a 1 600000000\r\n", "x"))),
		"NATS: an announced message of 600 MB":         nats(AsNATS(Send("MSG a 1 600000000\r\n"))),
		"NATS: an announced message within the budget": nats(AsNATS(Send("MSG a 1 8000000\r\n"))),
		"NATS: a header of 600 MB":                     nats(AsNATS(SendThenFlood("HMSG a 1 600000000 600000000\r\nNATS/1.0\r\n", "a: b\r\n"))),
		"NATS: a JSON document of empty elements":      nats(AsNATS(SendThenFlood("MSG a 1 8000000\r\n{\"streams\":[", "{},"))),
		"NATS: endless INFO":                           nats(AsNATS(SendThenFlood("", NATSInfo))),
		"NATS: endless +OK":                            nats(AsNATS(SendThenFlood("", "+OK\r\n"))),
		"NATS: endless PING":                           nats(AsNATS(SendThenFlood("", "PING\r\n"))),
		"NATS: endless messages":                       nats(AsNATS(SendThenFlood("", "MSG a 1 2\r\nok\r\n"))),
		"NATS: a first line without an end":            nats(SendThenFlood(`INFO {"server_id":"`, "x")),
		"NATS: a first line that dribbles":             nats(SendThenDribble("", NATSInfo)),
		"NATS: a message that dribbles":                nats(AsNATS(SendThenDribble("", "MSG a 1 1000\r\n"+strings.Repeat("x", 1000)))),
		"NATS: 100,000 servers":                        nats(Send(manyURLs)),
		"NATS: closes after the start of TLS":          nats(func(conn net.Conn) { _, _ = io.WriteString(conn, tlsInfo); AfterRequest(conn) }),
		"NATS: silence":                                nats(Send("")),
		"NATS: closes at once":                         nats(func(net.Conn) {}),

		"Redis: a string of 600 MB":           redis(SendThenFlood("$600000000\r\n", "x")),
		"Redis: an announced string":          redis(Send("$600000000\r\n")),
		"Redis: a string within the budget":   redis(Send("$8000000\r\n")),
		"Redis: an announced array":           redis(Send("*600000000\r\n")),
		"Redis: a million nested arrays":      redis(SendThenFlood("", "*1\r\n")),
		"Redis: an array of empty arrays":     redis(SendThenFlood("*200000\r\n", "*0\r\n")),
		"Redis: endless +OK":                  redis(SendThenFlood("", "+OK\r\n")),
		"Redis: an error of 600 MB":           redis(SendThenFlood("-ERR ", "x")),
		"Redis: endless push messages":        redis(SendThenFlood("", ">1\r\n+x\r\n")),
		"Redis: a reply that dribbles":        redis(SendThenDribble("", "$1000\r\n"+strings.Repeat("x", 1000))),
		"Redis: a line that dribbles":         redis(SendThenDribble("", "+"+strings.Repeat("x", 10_000))),
		"Redis: silence":                      redis(Send("")),
		"Redis: closes after the TLS hello":   {v1alpha1.EngineAsynq, "rediss", AfterRequest},
		"Redis: a TLS handshake that is slow": {v1alpha1.EngineAsynq, "rediss", SendThenDribble("", "\x16\x03\x03\x40\x00"+strings.Repeat("x", 1000))},
	}
}

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
		}), func(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
			return v1alpha1.Source{Redis: &v1alpha1.RedisSource{BrokerAccess: access, Key: "jobs"}}
		}}
	}
	rabbit := func(attack Attack) Source {
		return Source{"http://", AfterFirstRequest(attack), func(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
			return v1alpha1.Source{RabbitMQ: &v1alpha1.RabbitMQSource{BrokerAccess: access, Queue: "jobs"}}
		}}
	}
	query := func(attack Attack) Source {
		return Source{"http://", AfterFirstRequest(attack), func(access v1alpha1.BrokerAccess, _ string) v1alpha1.Source {
			return v1alpha1.Source{Prometheus: &v1alpha1.PrometheusSource{BrokerAccess: access, Query: "q"}}
		}}
	}
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

// Workers returns how hostile workers respond to a request of the operator, after they have read it.
func Workers() map[string]Attack {
	const ok = "HTTP/1.1 200 OK\r\n"
	chunked := ok + "Transfer-Encoding: chunked\r\n\r\n"
	return map[string]Attack{
		"a body of 600 MB":                    SendThenFlood(ok+fmt.Sprintf("Content-Length: %d\r\n\r\n", HugeSize), " "),
		"an endless body in chunks":           SendThenFlood(chunked, "1\r\n \r\n"),
		"an endless chunk extension":          SendThenFlood(chunked+"1;", "x"),
		"endless trailers":                    SendThenFlood(chunked+"0\r\n", "A: b\r\n"),
		"an endless header":                   SendThenFlood(ok, "A: b\r\n"),
		"an endless status line":              SendThenFlood("", "H"),
		"endless informational responses":     SendThenFlood("", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"),
		"a body that arrives byte by byte":    SendThenDribble(ok+"Content-Length: 10000\r\n\r\n", " "),
		"a header that arrives byte by byte":  SendThenDribble(ok+"A: ", " "),
		"no response":                         Send(""),
		"deeply nested JSON":                  SendAndClose(ok + "\r\n" + strings.Repeat("[", 1<<14)),
		"a compressed body that is not JSON":  SendAndClose(ok + "Content-Encoding: gzip\r\n\r\n\x1f\x8b"),
		"another protocol":                    SendAndClose(strings.Repeat("SSH-2.0-OpenSSH\r\n", 100)),
		"a closed connection":                 SendAndClose(""),
		"a body shorter than Content-Length":  SendAndClose(ok + "Content-Length: 100\r\n\r\n{}"),
		"a switch to another protocol":        SendThenDribble("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", " "),
		"two contradicting lengths of a body": SendAndClose(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
	}
}

// AnyWorker attacks each connection in another way of Workers. It passes the title to report.
func AnyWorker(report func(title string)) Attack {
	workers := Workers()
	titles := slices.Sorted(maps.Keys(workers))
	var connections atomic.Uint64
	return func(conn net.Conn) {
		AfterRequest(conn)
		title := titles[connections.Add(1)%uint64(len(titles))]
		report(title)
		workers[title](conn)
	}
}
