package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
)

func newQueueCommand(env *environment) *cobra.Command {
	return newParentCommand("queue", []string{"queues", "wq"}, "Inspect and suspend Queues, send, follow and cancel jobs, and manage dead letters",
		newListCommand(env, queueKind, "List Queues with their message counts"),
		newChangeCommand(env, specChange[*v1alpha1.Queue]{
			kind: queueKind, verb: "suspend", short: "Suspend Queues",
			long:           "Suspend Queues. Workers receive no more messages and finish those in flight. Producers can still send.",
			changeSpec:     func(q *v1alpha1.Queue) { q.Spec.Suspend = true },
			changedMessage: "suspended", unchangedMessage: "is already suspended",
		}),
		newChangeCommand(env, specChange[*v1alpha1.Queue]{
			kind: queueKind, verb: "resume", short: "Resume Queues", long: "Resume suspended Queues: workers receive messages again.",
			changeSpec:     func(q *v1alpha1.Queue) { q.Spec.Suspend = false },
			changedMessage: "resumed", unchangedMessage: "is not suspended",
		}),
		newSendCommand(env), newJobsCommand(env), newShowJobCommand(env), newCancelJobCommand(env), newDeadLetterCommand(env))
}

// newBrokerCommand returns a command that connects to the broker of the Queue NAME, and passes the connection and the further
// arguments to run.
func newBrokerCommand(
	env *environment, use, short, long string, run func(ctx context.Context, q *connectedQueue, args []string) error,
) *cobra.Command {
	brokerURL := ""
	command := &cobra.Command{
		Use:               use,
		Short:             short,
		Long:              long,
		Args:              cobra.ExactArgs(strings.Count(use, " ")),
		ValidArgsFunction: queueKind.completeNames(env, 1),
		RunE: func(command *cobra.Command, args []string) error {
			cluster, object, err := queueKind.connectAndGet(command.Context(), env, args[0])
			if err != nil {
				return err
			}
			return runOnBroker(command.Context(), cluster, object, brokerURL, func(ctx context.Context, q *connectedQueue) error {
				return run(ctx, q, args[1:])
			})
		},
	}
	command.Flags().StringVar(&brokerURL, "broker-url", "",
		"URL at which this machine reaches the broker. The default is the URL in the Queue's Secret.")
	return command
}

const (
	// maxPayloadBytes is more than brokers accept by default. They report their own limit.
	maxPayloadBytes = 64 << 20
	// sendTimeout limits how long the broker takes to confirm a job.
	sendTimeout = 10 * time.Second
)

type sendCommand struct {
	*environment

	filename, data string
	delay          time.Duration
	headers        []string
	job            broker.OutgoingJob
}

func newSendCommand(env *environment) *cobra.Command {
	s := &sendCommand{environment: env}
	command := newBrokerCommand(env, "send NAME", "Send a job to a Queue",
		"Send a job to a Queue, and print its ID. The payload is a file, standard input with -f -, or the text of --data. The plugin reads the "+
			"broker's Secrets with your permissions. If the broker's address is a Service in the cluster, the plugin forwards a port to a Pod behind it.",
		func(ctx context.Context, q *connectedQueue, _ []string) error {
			s.job.Queue = q.brokerName
			if s.delay > 0 {
				s.job.DueTime = s.now().Add(s.delay)
			}
			return sendJob(ctx, s.environment, q, &s.job)
		})
	flags := command.Flags()
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
	command.PreRunE = func(*cobra.Command, []string) error {
		s.job.HasChosenID, s.job.IsUnique, s.job.IsUniqueFor = s.job.ID != "", flags.Changed("unique"), flags.Changed("unique-for")
		return s.prepareJob()
	}
	return command
}

func (s *sendCommand) prepareJob() (err error) {
	if (s.filename == "") == (s.data == "") {
		return errors.New("set either --filename or --data")
	}
	if s.job.IsUniqueFor && !s.job.IsUnique {
		return errors.New("--unique-for requires --unique")
	}
	if s.delay < 0 {
		return fmt.Errorf("invalid --delay %s: must not be negative", s.delay)
	}
	s.job.Headers = map[string][]string{}
	for _, header := range s.headers {
		name, value, found := strings.Cut(header, "=")
		if !found {
			return fmt.Errorf("invalid --header %q: must be NAME=VALUE", header)
		}
		s.job.Headers[name] = append(s.job.Headers[name], value)
	}
	s.job.Payload = []byte(s.data)
	if s.filename != "" {
		s.job.Payload, err = readFile(s.filename, s.in, maxPayloadBytes)
	}
	return err
}

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
