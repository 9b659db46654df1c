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

// logRetryInterval is the wait before a log that broke off is asked for again.
const logRetryInterval = time.Second

// tailAllLines is what --tail is if it does not say how many.
const tailAllLines = -1

// sequenceLogsCommand is `kubectl yardmaster seq logs`.
type sequenceLogsCommand struct {
	*environment

	step                            string
	follow, timestamps, allAttempts bool
	tail                            int64
	since                           time.Duration
}

func newSequenceLogsCommand(env *environment) *cobra.Command {
	l := &sequenceLogsCommand{environment: env}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Tell the logs of a SequentialJob's steps",
		Long: "Tell the logs of a SequentialJob's steps, one step after another, each line with the step's name.\n\n" +
			"A step that may have several Pods has the end of the Pod's name behind its own, and a container that is not the step's has its name there too. " +
			"What a Pod no longer has is told on standard error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: sequentialJobKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return l.printLogs(command.Context(), args[0]) },
	}
	f := command.Flags()
	f.StringVar(&l.step, "step", "", "Tell only this step's logs.")
	f.BoolVarP(&l.follow, "follow", "f", false, "Go on until the run has ended.")
	f.Int64Var(&l.tail, "tail", tailAllLines, "How many lines of each log there is now are told, from its end; -1: all.")
	f.DurationVar(&l.since, "since", 0, "Tell only what is younger than this, such as 5m, of the logs there are now.")
	f.BoolVar(&l.timestamps, "timestamps", false, "Tell when each line was written.")
	f.BoolVar(&l.allAttempts, "all-attempts", false, "Tell also of earlier attempts and runs.")
	panicOnError(command.RegisterFlagCompletionFunc("step", env.completeStepName))
	return command
}

func (l *sequenceLogsCommand) printLogs(ctx context.Context, name string) error {
	if err := l.validateFlags(); err != nil {
		return err
	}
	cluster, err := l.connect(l.clientConfig)
	if err != nil {
		return err
	}
	sj, err := cluster.getSequentialJob(ctx, name)
	if err != nil {
		return err
	}
	if steps := logs.StepNames(sj); l.step != "" && !slices.Contains(steps, l.step) {
		return fmt.Errorf("--step is %q, must be one of %v", l.step, steps)
	}
	teller, err := logs.NewStreamer(ctx, &podLogClient{cluster, sj.Namespace, selectSequencePods(sj)}, sj, l.streamOptions())
	if err != nil {
		return err
	}
	if !l.follow {
		return teller.PrintCurrent(ctx, sj)
	}
	return followLogs(ctx, cluster, sj, teller)
}

// validateFlags tells what is wrong with the flags.
func (l *sequenceLogsCommand) validateFlags() error {
	if l.tail < tailAllLines {
		return fmt.Errorf("--tail is %d, must be -1 for all lines, or more", l.tail)
	}
	if l.since < 0 {
		return fmt.Errorf("--since is %s, must not be negative", l.since)
	}
	return nil
}

func (l *sequenceLogsCommand) streamOptions() logs.StreamOptions {
	options := logs.StreamOptions{
		Step: l.step, Follow: l.follow, AllAttempts: l.allAttempts, Timestamps: l.timestamps, Retry: logRetryInterval,
		Out: l.out, ErrOut: l.errOut, Style: l.outputStyle(),
	}
	if l.tail >= 0 {
		options.Tail = &l.tail
	}
	if l.since > 0 {
		options.Since = l.now().Add(-l.since)
	}
	return options
}

func followLogs(ctx context.Context, cluster *clusterConnection, sj *v1alpha1.SequentialJob, teller *logs.Streamer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sequentialJobs, err := follow.StartFeed(ctx, cluster.WithWatch, &v1alpha1.SequentialJobList{}, &v1alpha1.SequentialJob{}, selectSingleObject(sj)...)
	if err != nil {
		return err
	}
	pods, err := follow.StartFeed(ctx, cluster.WithWatch, &corev1.PodList{}, &corev1.Pod{}, selectSequencePods(sj)...)
	if err != nil {
		return err
	}
	trouble := make(chan error)
	go func() { forwardPermissionErrors(ctx, trouble, sequentialJobs.Errors, pods.Errors) }()
	return teller.Follow(ctx, sj, isRunFinished, logs.World{SequentialJobs: sequentialJobs.Updates, Pods: pods.Updates, Trouble: trouble})
}

// forwardPermissionErrors hands on the trouble that does not pass by itself.
func forwardPermissionErrors(ctx context.Context, to chan<- error, a, b <-chan error) {
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case err = <-a:
		case err = <-b:
		}
		if !isPermissionError(err) {
			continue
		}
		select {
		case <-ctx.Done():
		case to <- err:
		}
		return
	}
}

// isPermissionError reports whether it is of no use to try again.
func isPermissionError(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// selectSequencePods selects those made for the SequentialJob.
func selectSequencePods(sj *v1alpha1.SequentialJob) []client.ListOption {
	return []client.ListOption{client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(sj.UID)}}
}

// podLogClient something are where logs finds what it tells of.
type podLogClient struct {
	cluster   *clusterConnection
	namespace string
	which     []client.ListOption
}

// ListPods implements logs.Cluster.
func (p *podLogClient) ListPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := p.cluster.List(ctx, &list, p.which...)
	return list.Items, err
}

// GetPod implements logs.Cluster.
func (p *podLogClient) GetPod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := p.cluster.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, pod)
	return pod, err
}

// OpenLog implements logs.Cluster.
func (p *podLogClient) OpenLog(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	return p.cluster.podsGetter.Pods(p.namespace).GetLogs(pod, options).Stream(ctx)
}
