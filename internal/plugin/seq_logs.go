package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// retryLogs is the wait before a log that broke off is asked for again.
const retryLogs = time.Second

// allLines is what --tail is if it does not say how many.
const allLines = -1

// logsCommand is `kubectl yardmaster seq logs`.
type logsCommand struct {
	*environment

	step                            string
	follow, timestamps, allAttempts bool
	tail                            int64
	since                           time.Duration
}

func newLogs(env *environment) *cobra.Command {
	l := &logsCommand{environment: env}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Tell the logs of a SequentialJob's steps",
		Long: "Tell the logs of a SequentialJob's steps, one step after another, each line with the step's name.\n\n" +
			"A step that may have several Pods has the end of the Pod's name behind its own, and a container that is not the step's has its name there too. " +
			"What a Pod no longer has is told on standard error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: sequentialKind().completeName(env),
		RunE:              func(command *cobra.Command, args []string) error { return l.run(command.Context(), args[0]) },
	}
	f := command.Flags()
	f.StringVar(&l.step, "step", "", "Tell only this step's logs.")
	f.BoolVarP(&l.follow, "follow", "f", false, "Go on until the run has ended.")
	f.Int64Var(&l.tail, "tail", allLines, "How many lines of each log there is now are told, from its end; -1: all.")
	f.DurationVar(&l.since, "since", 0, "Tell only what is younger than this, such as 5m, of the logs there are now.")
	f.BoolVar(&l.timestamps, "timestamps", false, "Tell when each line was written.")
	f.BoolVar(&l.allAttempts, "all-attempts", false, "Tell also of earlier attempts and runs.")
	must(command.RegisterFlagCompletionFunc("step", env.completeStep))
	return command
}

func (l *logsCommand) run(ctx context.Context, name string) error {
	if err := l.check(); err != nil {
		return err
	}
	cluster, err := l.connect(l.config)
	if err != nil {
		return err
	}
	sj, err := cluster.sequentialJob(ctx, name)
	if err != nil {
		return err
	}
	if steps := logs.Steps(sj); l.step != "" && !slices.Contains(steps, l.step) {
		return fmt.Errorf("--step is %q, must be one of %v", l.step, steps)
	}
	teller, err := logs.New(ctx, &podsOf{cluster, sj.Namespace, selectPods(sj)}, sj, l.options())
	if err != nil {
		return err
	}
	if !l.follow {
		return teller.Tell(ctx, sj)
	}
	return followLogs(ctx, cluster, sj, teller)
}

// check tells what is wrong with the flags.
func (l *logsCommand) check() error {
	if l.tail < allLines {
		return fmt.Errorf("--tail is %d, must be -1 for all lines, or more", l.tail)
	}
	if l.since < 0 {
		return fmt.Errorf("--since is %s, must not be negative", l.since)
	}
	return nil
}

func (l *logsCommand) options() logs.Options {
	options := logs.Options{
		Step: l.step, Follow: l.follow, AllAttempts: l.allAttempts, Timestamps: l.timestamps, Retry: retryLogs,
		Out: l.out, ErrOut: l.errOut, Style: l.style(),
	}
	if l.tail >= 0 {
		options.Tail = &l.tail
	}
	if l.since > 0 {
		options.Since = l.now().Add(-l.since)
	}
	return options
}

func followLogs(ctx context.Context, cluster *connection, sj *v1alpha1.SequentialJob, teller *logs.Teller) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sequentialJobs, err := follow.Start(ctx, cluster.WithWatch, &v1alpha1.SequentialJobList{}, &v1alpha1.SequentialJob{}, only(sj)...)
	if err != nil {
		return err
	}
	pods, err := follow.Start(ctx, cluster.WithWatch, &corev1.PodList{}, &corev1.Pod{}, selectPods(sj)...)
	if err != nil {
		return err
	}
	trouble := make(chan error)
	go func() { sendForbidden(ctx, trouble, sequentialJobs.Trouble, pods.Trouble) }()
	return teller.Follow(ctx, sj, ended, logs.World{SequentialJobs: sequentialJobs.Sights, Pods: pods.Sights, Trouble: trouble})
}

// sendForbidden hands on the trouble that does not pass by itself.
func sendForbidden(ctx context.Context, to chan<- error, a, b <-chan error) {
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case err = <-a:
		case err = <-b:
		}
		if !lasting(err) {
			continue
		}
		select {
		case <-ctx.Done():
		case to <- err:
		}
		return
	}
}

// lasting reports whether it is of no use to try again.
func lasting(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// selectPods selects those made for the SequentialJob.
func selectPods(sj *v1alpha1.SequentialJob) []client.ListOption {
	return []client.ListOption{client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(sj.UID)}}
}

// podsOf something are where logs finds what it tells of.
type podsOf struct {
	cluster   *connection
	namespace string
	which     []client.ListOption
}

// Pods implements logs.Cluster.
func (p *podsOf) Pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := p.cluster.List(ctx, &list, p.which...)
	return list.Items, err
}

// Pod implements logs.Cluster.
func (p *podsOf) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := p.cluster.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, pod)
	return pod, err
}

// Log implements logs.Cluster.
func (p *podsOf) Log(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	return p.cluster.pods.Pods(p.namespace).GetLogs(pod, options).Stream(ctx)
}
