package logs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// desk is what all who tell logs have.
type desk struct {
	cluster Cluster
	options Options
	printer *printer
	// early are the logs that were there when the command began.
	early map[source]bool
}

func newDesk(cluster Cluster, options Options) desk {
	return desk{
		cluster: cluster, options: options, early: map[source]bool{},
		printer: &printer{out: options.Out, errOut: options.ErrOut, style: options.Style, colours: map[string]terminal.Colour{}},
	}
}

// listed are the Pods there are, as soon as the API server can tell.
func (d *desk) listed(ctx context.Context) ([]corev1.Pod, error) {
	for again := false; ; again = true {
		pods, err := d.cluster.Pods(ctx)
		if err == nil || apierrors.IsForbidden(err) {
			return pods, err
		}
		if !again {
			d.printer.note(fmt.Sprintf("listing Pods: %v; trying again", err))
		}
		if err := pause(ctx, d.options.Retry); err != nil {
			return nil, err
		}
	}
}
