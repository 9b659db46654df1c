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

const logRetryInterval = time.Second

// tailAllLines is the value of --tail that prints whole logs.
const tailAllLines = -1

type logStreamer[T client.Object] interface {
	PrintCurrent(ctx context.Context, object T) error
	Follow(ctx context.Context, object T, isFinished func(T) bool, changes logs.Changes[T]) error
}

type logsCommand[T client.Object] struct {
	*environment

	kind *resourceKind[T]
	// podLabel is the label of the object's Pods with the object's UID.
	podLabel    string
	newStreamer func(context.Context, logs.PodClient, T, logs.StreamOptions) (logStreamer[T], error)

	options logs.StreamOptions
	tail    int64
	since   time.Duration
}

func (l *logsCommand[T]) newCommand(short, long, followUsage string) *cobra.Command {
	command := l.kind.newObjectCommand(l.environment, "logs", short, long+" Missing logs are reported on standard error.", l.printLogs)
	command.PreRunE = func(*cobra.Command, []string) error {
		if l.tail < tailAllLines {
			return fmt.Errorf("invalid --tail %d: must be -1 (all lines) or greater", l.tail)
		}
		return nil
	}
	f := command.Flags()
	f.BoolVarP(&l.options.Follow, "follow", "f", false, followUsage)
	f.Int64Var(&l.tail, "tail", tailAllLines, "Number of lines to print from the end of each existing log; -1 prints all.")
	addDurationFlag(command, &l.since, "since", "Print only lines newer than this, such as 5m or 7d, of each existing log.")
	f.BoolVar(&l.options.Timestamps, "timestamps", false, "Print the time of each line.")
	f.BoolVar(&l.options.AllAttempts, "all-attempts", false, "Print the logs of earlier attempts and runs too.")
	return command
}

func (l *logsCommand[T]) printLogs(ctx context.Context, cluster *clusterConnection, object T) error {
	options := l.options
	options.Retry, options.Out, options.ErrOut, options.Style = logRetryInterval, l.out, l.errOut, l.outputStyle()
	if l.tail >= 0 {
		options.Tail = &l.tail
	}
	if l.since > 0 {
		options.Since = l.now().Add(-l.since)
	}
	podSelector := []client.ListOption{client.InNamespace(object.GetNamespace()), client.MatchingLabels{l.podLabel: string(object.GetUID())}}
	streamer, err := l.newStreamer(ctx, &podLogClient{cluster, object.GetNamespace(), podSelector}, object, options)
	if err != nil {
		return err
	}
	if !options.Follow {
		return streamer.PrintCurrent(ctx, object)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	objects, err := follow.StartFeed(ctx, cluster.WithWatch, l.kind.emptyList, l.kind.emptyObject, selectSingleObject(object)...)
	if err != nil {
		return err
	}
	pods, err := follow.StartFeed(ctx, cluster.WithWatch, &corev1.PodList{}, &corev1.Pod{}, podSelector...)
	if err != nil {
		return err
	}
	permissionErrors := make(chan error, 1)
	go func() {
		var err error
		for !isPermissionError(err) {
			select {
			case <-ctx.Done():
				return
			case err = <-objects.Errors:
			case err = <-pods.Errors:
			}
		}
		permissionErrors <- err
	}()
	return streamer.Follow(ctx, object, l.kind.isFinished, logs.Changes[T]{Objects: objects.Updates, Pods: pods.Updates, Errors: permissionErrors})
}

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
