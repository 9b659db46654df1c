package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/testenv"
)

// ProcessRole is a function that a benchmark runs in a process of its own instead of the
// benchmark itself. The first argument is the name of the role.
type ProcessRole func(ctx context.Context, args []string) error

// RunMain runs the role that the first argument names, or else the benchmark, until it is
// finished or interrupted. Every benchmark has the role NATSServerRole.
func RunMain(run func(ctx context.Context) error, roles map[string]ProcessRole) {
	if err := runRole(run, roles); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runRole(run func(ctx context.Context) error, roles map[string]ProcessRole) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 2 {
		return run(ctx)
	}
	if os.Args[1] == NATSServerRole {
		return serveNATS(ctx, os.Args[1:])
	}
	if role := roles[os.Args[1]]; role != nil {
		return role(ctx, os.Args[1:])
	}
	return run(ctx)
}

// PositiveFlag adds a flag for a number that must be at least 1. The default is the number's present value.
func PositiveFlag(number *int, name, usage string) {
	flag.Func(name, fmt.Sprintf("%s (default %d)", usage, *number), func(text string) error {
		n, err := strconv.Atoi(text)
		if err == nil && n < 1 {
			err = errors.New("must be at least 1")
		}
		*number = n
		return err
	})
}

// RunOnCluster is the main function of a benchmark that needs a cluster. It parses the flags, connects to the control plane of -kubeconfig or starts
// one, builds the operator, prints the machine, and then measures.
func RunOnCluster(measure func(ctx context.Context, c *Cluster, operatorBinary string) error) {
	RunMain(func(ctx context.Context) error {
		kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a running control plane; if empty, a local one is started")
		flag.Parse()
		c, end, err := OpenCluster(ctx, *kubeconfig)
		if err != nil {
			return err
		}
		defer end()
		binary, err := testenv.BuildOperator()
		if err != nil {
			return err
		}
		PrintMachine()
		return measure(ctx, c, binary)
	}, nil)
}

// WatchLists watches the objects that the lists and options select. It calls onEvent for each event with the time of its arrival, and onEnd when a
// watch has ended with an error. Both may be called concurrently.
//
// A busy API server closes watches of clients that it cannot serve in time. Such a watch is
// resumed where it ended, so that no event is lost or repeated.
func WatchLists(
	ctx context.Context, c *Cluster, onEvent func(watch.Event, time.Time), onEnd func(error),
	lists []client.ObjectList, options ...client.ListOption,
) error {
	for _, list := range lists {
		events, err := c.Watch(ctx, list, options...)
		if err != nil {
			return err
		}
		go func() {
			onEnd(watchList(ctx, c, onEvent, list, options, events))
		}()
	}
	return nil
}

// watchList passes on events until the watch cannot be resumed.
func watchList(
	ctx context.Context, c *Cluster, onEvent func(watch.Event, time.Time),
	list client.ObjectList, options []client.ListOption, events watch.Interface,
) error {
	version := ""
	for {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				return fmt.Errorf("watching %T: %w", list, apierrors.FromObject(event.Object))
			}
			if object, ok := event.Object.(metav1.Object); ok {
				version = object.GetResourceVersion()
			}
			onEvent(event, time.Now())
		}
		if version == "" {
			return errors.Join(fmt.Errorf("the watch of %T ended before its first event", list), ctx.Err())
		}
		from := append([]client.ListOption{}, options...)
		var err error
		events, err = c.Watch(ctx, list, append(from, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
		if err != nil {
			return fmt.Errorf("resuming the watch of %T: %w", list, err)
		}
	}
}
