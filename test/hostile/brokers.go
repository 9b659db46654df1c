package hostile

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

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
