package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	jetstreamengine "github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

// NATSServerRole is the role of a process that is the broker.
const NATSServerRole = "nats-server"

// serveNATS prints the server's URL and serves until it is interrupted. Its arguments are the storage directory and the port.
func serveNATS(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s DIRECTORY PORT", args[0])
	}
	port := Must(strconv.Atoi(args[2]))
	s := Must(server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: args[1], NoLog: true, NoSigs: true}))
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server did not start within 10 s")
	}
	fmt.Println(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// NATSProcess is a NATS server in a process of its own, so that its CPU time can be measured and it can be killed.
type NATSProcess struct {
	URL string

	ctx            context.Context //nolint:containedctx // restarted processes must end with it, too
	storeDirectory string
	process        *exec.Cmd
}

// StartNATS starts a NATS server on a free port, and returns when the server accepts connections.
func StartNATS(ctx context.Context) *NATSProcess {
	n := &NATSProcess{ctx: ctx, storeDirectory: Must(os.MkdirTemp("", "bench-nats-"))}
	n.startServer(strconv.Itoa(server.RANDOM_PORT))
	return n
}

func (n *NATSProcess) startServer(port string) {
	process := SelfCommand(n.ctx, NATSServerRole, n.storeDirectory, port)
	output := Must(process.StdoutPipe())
	Check(process.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		terminateProcess(process)
		Check(fmt.Errorf("waiting for the NATS server: %w", err))
	}
	n.process, n.URL = process, strings.TrimSpace(line)
}

// Pid returns the server's process ID.
func (n *NATSProcess) Pid() int { return n.process.Process.Pid }

// Kill kills the server, so that it cannot close its connections. Its files remain.
func (n *NATSProcess) Kill() {
	Check(n.process.Process.Signal(syscall.SIGKILL))
	_ = n.process.Wait() // it returns an error that describes the signal
}

// Restart starts a killed server with the same address and files, and returns when the server accepts connections.
func (n *NATSProcess) Restart() { n.startServer(Must(url.Parse(n.URL)).Port()) }

// StopAndRemove stops the server and removes its files.
func (n *NATSProcess) StopAndRemove() {
	terminateProcess(n.process)
	if err := os.RemoveAll(n.storeDirectory); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// CreateQueue creates a queue as the operator does.
func CreateQueue(ctx context.Context, url, name string) {
	engine := Must(jetstreamengine.Connect(ctx, broker.Credentials{URL: url, Name: "bench"}))
	defer engine.Disconnect()
	config := broker.DefaultQueueConfig(name)
	config.Owner = broker.QueueOwner{UID: "1", Name: "bench/" + name}
	_ = Must(engine.EnsureQueue(ctx, config))
}

// Producer publishes messages to a queue with the priority default.
type Producer struct {
	jetstream.JetStream

	queueName  string
	connection *nats.Conn
}

// ConnectProducer connects to the NATS server of an existing queue.
func ConnectProducer(url, queueName string) (*Producer, error) {
	connection, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		connection.Close()
		return nil, err
	}
	return &Producer{JetStream: js, queueName: queueName, connection: connection}, nil
}

// CloseConnection closes the connection to the server.
func (p *Producer) CloseConnection() { p.connection.Close() }

// PublishBurst publishes messages without payload and waits until the server has stored them.
func (p *Producer) PublishBurst(ctx context.Context, messages int, timeout time.Duration) error {
	for range messages {
		if _, err := p.PublishAsync("yardmaster."+p.queueName+".ready.default", nil, jetstream.WithStallWait(timeout)); err != nil {
			return err
		}
	}
	select {
	case <-p.PublishAsyncComplete():
		return nil
	case <-time.After(timeout):
		return errors.New("timed out waiting until the broker has stored the messages")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// QueueStream returns the stream of the queue.
func (p *Producer) QueueStream(ctx context.Context) (jetstream.Stream, error) {
	return p.Stream(ctx, "yardmaster_"+p.queueName)
}
