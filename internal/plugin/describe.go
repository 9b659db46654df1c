package plugin

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newDescribeCommand returns a command that shows the Pods and events of an object, whose Pods have its UID in a label.
func newDescribeCommand[T client.Object](env *environment, kind *resourceKind[T], uidLabel string) *cobra.Command {
	var format string
	command := kind.newObjectCommand(env, "describe", "Show the Pods and events of "+kind.kindName+"s",
		"Show the Pods of a "+kind.kindName+" with their states, and the events about it, its Jobs and its Pods, the latest first.",
		func(ctx context.Context, cluster *clusterConnection, object T) error {
			description, err := env.describe(ctx, cluster, object, uidLabel)
			if err != nil {
				return err
			}
			if format != outputTable {
				return printEncoded(env.out, format, description)
			}
			return terminal.WriteLines(env.out, description.Lines(env.outputStyle(), env.now()))
		})
	addOutputFlag(command, &format, outputTable, outputJSON, outputYAML)
	return command
}

// maxDescribedObjects limits the objects whose events are read: one request each.
const maxDescribedObjects = 30

// describe reads the Pods and events of an object. It reports unreadable events as unknown.
func (e *environment) describe(ctx context.Context, cluster *clusterConnection, object client.Object, uidLabel string) (*render.Description, error) {
	pods := &corev1.PodList{}
	if err := cluster.List(ctx, pods, client.InNamespace(object.GetNamespace()), client.MatchingLabels{uidLabel: string(object.GetUID())}); err != nil {
		return nil, err
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	description, uids := &render.Description{Pods: []render.PodState{}, Events: []render.Event{}}, []types.UID{object.GetUID()}
	for i := range pods.Items {
		pod := &pods.Items[i]
		description.Pods = append(description.Pods, render.NewPodState(pod))
		uids = append(uids, pod.UID)
		if owner := metav1.GetControllerOf(pod); owner != nil && !slices.Contains(uids, owner.UID) {
			uids = append(uids, owner.UID)
		}
	}
	events := e.readEvents(ctx, cluster, object.GetNamespace(), uids[:min(len(uids), maxDescribedObjects)])
	for i := range events {
		event := &events[i]
		description.Events = append(description.Events, render.Event{
			Type: event.Type, Object: event.InvolvedObject.Kind + "/" + event.InvolvedObject.Name, Reason: event.Reason, Message: event.Message,
			Count: event.Count, Last: render.EventTime(event),
		})
	}
	slices.SortStableFunc(description.Events, func(a, b render.Event) int { return b.Last.Compare(a.Last) })
	return description, nil
}
