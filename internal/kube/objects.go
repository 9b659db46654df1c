// Package kube contains what all controllers share for talking to the API server: the loop of a reconciliation, writes under an
// optimistic lock, memory of this process's writes, queues in which namespaces take turns, and conversion of errors to refusals
// and retries.
package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// GetIfExists reads an object into a given object and returns it; nil if it does not exist.
func GetIfExists[T client.Object](ctx context.Context, reader client.Reader, namespace, name string, into T) (T, error) {
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return *new(T), nil
	}
	if err != nil {
		return *new(T), fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return into, nil
}

// ReadMetadata reads the metadata of an object; nil if the object does not exist.
func ReadMetadata(
	ctx context.Context, reader client.Reader, kind schema.GroupVersionKind, namespace, name string,
) (*metav1.PartialObjectMetadata, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	return found, nil
}

// DeleteVersion deletes exactly this version of an object; another version is a conflict. It is not an error if the object no
// longer exists.
func DeleteVersion(ctx context.Context, c client.Client, object client.Object, propagation metav1.DeletionPropagation) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := c.Delete(ctx, object, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// UpdateStatus writes the status if it differs, and only if the object still has the version that was read. On success after is
// the stored object. It replaces the whole status, with half of the API server's work of a patch
// (docs/decisions/0129-the-status-is-one-field.md), so the object must not come from a cache that drops parts of the status.
func UpdateStatus(ctx context.Context, c client.Client, before, after client.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return c.Status().Update(ctx, after)
}

// PatchMetadata changes an object's metadata, such as its finalizers, only if the object still has the version that was read.
// Without a difference it does nothing. On success object is the stored object. It is not an error if a deleted object
// disappears in the meantime.
func PatchMetadata(ctx context.Context, c client.Client, object client.Object, change func(client.Object)) error {
	before := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has its original's type
	change(object)
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	err := c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if !before.GetDeletionTimestamp().IsZero() {
		return client.IgnoreNotFound(err)
	}
	return err
}

// AsRefusal converts an error of writing an object to a refusal, or returns the error if the write may succeed later without
// another decision. Both are nil without an error. In a terminating namespace the error is ErrStale: nothing can be created
// there, and the owner is about to be deleted.
func AsRefusal(err error, refused decision.Refusal) (*decision.Refusal, error) {
	if refusal := decision.AsRefusal(err, refused); refusal != nil || err == nil {
		return refusal, nil
	}
	if decision.ClassOf(err) == decision.NamespaceTerminating {
		return nil, ErrStale
	}
	return nil, fmt.Errorf("writing %s %s: %w", refused.Kind, refused.Name, err)
}

// maxEventNoteBytes is the longest note of an event that the API server accepts. The recorder drops a rejected event.
const maxEventNoteBytes = 1024

// EmitEvent emits an event about an object. It truncates the message to maxEventNoteBytes.
func EmitEvent(recorder events.EventRecorder, about runtime.Object, event decision.Event) {
	recorder.Eventf(about, nil, event.Type, event.Reason, event.Action, "%s", decision.TruncateMessage(event.Message, maxEventNoteBytes))
}
