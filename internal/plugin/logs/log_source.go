package logs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// logSource is what all who tell logs have.
type logSource struct {
	podClient PodClient
	options   StreamOptions
	printer   *linePrinter
	// existing are the logs that were there when the command began.
	existing map[containerLog]bool
}

func newLogSource(cluster PodClient, options StreamOptions) logSource {
	return logSource{
		podClient: cluster, options: options, existing: map[containerLog]bool{},
		printer: &linePrinter{out: options.Out, errOut: options.ErrOut, style: options.Style, stepColors: map[string]terminal.Color{}},
	}
}

// listPodsWithRetry are the Pods there are, as soon as the API server can tell.
func (d *logSource) listPodsWithRetry(ctx context.Context) ([]corev1.Pod, error) {
	for again := false; ; again = true {
		pods, err := d.podClient.ListPods(ctx)
		if err == nil || apierrors.IsForbidden(err) {
			return pods, err
		}
		if !again {
			d.printer.printNotice(fmt.Sprintf("listing Pods: %v; trying again", err))
		}
		if err := sleepContext(ctx, d.options.Retry); err != nil {
			return nil, err
		}
	}
}
