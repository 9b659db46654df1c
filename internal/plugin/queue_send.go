package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
)

const (
	brokerURLHelp = "URL at which this machine reaches the broker. The default is the URL in the Queue's Secret."
	// maxPayloadBytes is more than brokers accept by default. They report their own limit.
	maxPayloadBytes = 64 << 20
	// sendTimeout limits how long the broker takes to confirm a job.
	sendTimeout = 10 * time.Second
)

// sendCommand is `kubectl yardmaster queue send`.
type sendCommand struct {
	*environment

	brokerURL, filename, data string
	delay                     time.Duration
	headers                   []string
	job                       broker.OutgoingJob
}

func newSendCommand(env *environment) *cobra.Command {
	s := &sendCommand{environment: env}
	var flags *pflag.FlagSet
	command := queueKind.newObjectCommand(env, "send", "Send a job to a Queue",
		"Send a job to a Queue, and print its ID. The payload is a file, standard input with -f -, or the text of --data. The plugin reads the "+
			"broker's Secrets with your permissions. If the broker's address is a Service in the cluster, the plugin forwards a port to a Pod behind it.",
		func(ctx context.Context, cluster *clusterConnection, object *v1alpha1.Queue) error {
			s.job.IsUnique, s.job.IsUniqueFor = flags.Changed("unique"), flags.Changed("unique-for")
			if err := s.prepareJob(); err != nil {
				return err
			}
			return runOnBroker(ctx, cluster, object, s.brokerURL, func(ctx context.Context, q *connectedQueue) error {
				s.job.Queue = q.brokerName
				if s.delay > 0 {
					s.job.DueTime = s.now().Add(s.delay)
				}
				return sendJob(ctx, s.environment, q, &s.job)
			})
		})
	flags = command.Flags()
	flags.StringVarP(&s.filename, "filename", "f", "", "File with the payload, or - for standard input.")
	flags.StringVar(&s.data, "data", "", "Text of the payload.")
	flags.StringVar(&s.job.Kind, "kind", "", "Kind of the job, which selects its handler.")
	flags.StringVar(&s.job.Priority, "priority", "", "Priority of the Queue. The default is the priority named default.")
	flags.StringVar(&s.job.ID, "id", "", "ID of the job. The broker does not store a second job with this ID for some time.")
	flags.StringVar(&s.job.UniqueKey, "unique", "", "Key of which the Queue accepts one job until that job is done, dead or canceled.")
	flags.DurationVar(&s.job.UniqueFor, "unique-for", 0, "With --unique, the time for which the Queue accepts one job with the key, such as 1h, also if the job ends before.")
	flags.DurationVar(&s.delay, "delay", 0, "Time until a worker may start the job, such as 5m.")
	flags.DurationVar(&s.job.Timeout, "timeout", 0, "Limit of the time of each attempt. The default is that of the Queue.")
	flags.StringArrayVar(&s.headers, "header", nil, "Header as NAME=VALUE. Repeat the flag for each.")
	flags.StringVar(&s.brokerURL, "broker-url", "", brokerURLHelp)
	return command
}

// prepareJob makes the job of the flags.
func (s *sendCommand) prepareJob() error {
	if (s.filename == "") == (s.data == "") {
		return errors.New("set either --filename or --data")
	}
	if s.job.IsUniqueFor && !s.job.IsUnique {
		return errors.New("--unique-for requires --unique")
	}
	if s.delay < 0 {
		return fmt.Errorf("invalid --delay %s: must not be negative", s.delay)
	}
	s.job.HasChosenID = s.job.ID != ""
	for _, header := range s.headers {
		name, value, found := strings.Cut(header, "=")
		if !found {
			return fmt.Errorf("invalid --header %q: must be NAME=VALUE", header)
		}
		if s.job.Headers == nil {
			s.job.Headers = map[string][]string{}
		}
		s.job.Headers[name] = append(s.job.Headers[name], value)
	}
	if s.filename == "" {
		s.job.Payload = []byte(s.data)
		return nil
	}
	payload, err := readFile(s.filename, s.in, maxPayloadBytes)
	s.job.Payload = payload
	return err
}

// sendJob sends a job, and prints its ID.
func sendJob(ctx context.Context, env *environment, q *connectedQueue, job *broker.OutgoingJob) error {
	producer, isProducer := q.Engine.(broker.Producer)
	if !isProducer {
		return errors.New("the engine of its broker cannot send jobs")
	}
	if err := job.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	result, err := jobkeys.Send(ctx, producer, job)
	switch {
	case err != nil:
		return err
	case result.Duplicate:
		fmt.Fprintf(env.out, "%s has job %s already\n", queueKind.qualifiedName(q.Queue), result.ID)
	default:
		fmt.Fprintf(env.out, "job %s sent to %s\n", result.ID, queueKind.qualifiedName(q.Queue))
	}
	return nil
}
