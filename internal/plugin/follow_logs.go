package plugin

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// logRetryInterval is the wait before an interrupted log is requested again.
const logRetryInterval = time.Second

// tailAllLines is the value of --tail that prints whole logs.
const tailAllLines = -1

// logFlags are the flags that all commands for logs share.
type logFlags struct {
	follow, timestamps, allAttempts bool
	tail                            int64
	since                           time.Duration
}

func (l *logFlags) addLogFlags(command *cobra.Command, followUsage string) {
	f := command.Flags()
	f.BoolVarP(&l.follow, "follow", "f", false, followUsage)
	f.Int64Var(&l.tail, "tail", tailAllLines, "Number of lines to print from the end of each existing log; -1 prints all.")
	f.DurationVar(&l.since, "since", 0, "Print only lines newer than this, such as 5m, of each existing log.")
	f.BoolVar(&l.timestamps, "timestamps", false, "Print the time of each line.")
	f.BoolVar(&l.allAttempts, "all-attempts", false, "Print the logs of earlier attempts and runs too.")
}

func (l *logFlags) validateFlags() error {
	if l.tail < tailAllLines {
		return fmt.Errorf("invalid --tail %d: must be -1 (all lines) or greater", l.tail)
	}
	if l.since < 0 {
		return fmt.Errorf("invalid --since %s: must not be negative", l.since)
	}
	return nil
}

func (l *logFlags) streamOptions(env *environment) logs.StreamOptions {
	options := logs.StreamOptions{
		Follow: l.follow, AllAttempts: l.allAttempts, Timestamps: l.timestamps, Retry: logRetryInterval,
		Out: env.out, ErrOut: env.errOut, Style: env.outputStyle(),
	}
	if l.tail >= 0 {
		options.Tail = &l.tail
	}
	if l.since > 0 {
		options.Since = env.now().Add(-l.since)
	}
	return options
}

// followLogs watches the object and its Pods and passes their changes to stream until that
// returns.
func followLogs[T client.Object](
	ctx context.Context, cluster *clusterConnection, kind *resourceKind[T], object T, podSelector []client.ListOption,
	stream func(context.Context, logs.Changes[T]) error,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	objects, err := follow.StartFeed(ctx, cluster.WithWatch, kind.newList(), kind.newObject(), selectSingleObject(object)...)
	if err != nil {
		return err
	}
	pods, err := follow.StartFeed(ctx, cluster.WithWatch, &corev1.PodList{}, &corev1.Pod{}, podSelector...)
	if err != nil {
		return err
	}
	permissionErrors := make(chan error)
	go func() { forwardPermissionErrors(ctx, permissionErrors, objects.Errors, pods.Errors) }()
	return stream(ctx, logs.Changes[T]{Objects: objects.Updates, Pods: pods.Updates, Errors: permissionErrors})
}

// forwardPermissionErrors forwards the first error for which a retry cannot succeed.
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

// podLogClient reads the selected Pods and their logs.
type podLogClient struct {
	cluster     *clusterConnection
	namespace   string
	podSelector []client.ListOption
}

// ListPods implements logs.PodClient.
func (p *podLogClient) ListPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := p.cluster.List(ctx, &list, p.podSelector...)
	return list.Items, err
}

// GetPod implements logs.PodClient.
func (p *podLogClient) GetPod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := p.cluster.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, pod)
	return pod, err
}

// OpenLog implements logs.PodClient.
func (p *podLogClient) OpenLog(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	return p.cluster.podsGetter.Pods(p.namespace).GetLogs(pod, options).Stream(ctx)
}
