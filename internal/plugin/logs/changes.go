package logs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// Changes are the changes of an object and its Pods.
type Changes[T client.Object] struct {
	Objects <-chan follow.ObjectUpdate[T]
	Pods    <-chan follow.ObjectUpdate[*corev1.Pod]
	// Errors receives only errors for which a retry cannot succeed.
	Errors <-chan error
}

type changeTracker[T client.Object] struct {
	changes Changes[T]
	object  T
	deleted bool
	pods    map[string]corev1.Pod
}

func newChangeTracker[T client.Object](object T, changes Changes[T]) *changeTracker[T] {
	return &changeTracker[T]{object: object, changes: changes, pods: map[string]corev1.Pod{}}
}

func (t *changeTracker[T]) waitForChange(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-t.changes.Errors:
		return err
	case update := <-t.changes.Objects:
		sameObject := update.Object.GetUID() == t.object.GetUID() // not a new object with the same name
		t.deleted = update.Deleted || !sameObject
		if sameObject && update.Object.GetGeneration() >= t.object.GetGeneration() {
			t.object = update.Object
		}
	case update := <-t.changes.Pods:
		if update.Deleted {
			delete(t.pods, update.Object.Name)
		} else {
			t.pods[update.Object.Name] = *update.Object
		}
	}
	return nil
}
