package harness

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

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
