package fuzz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objectKey identifies an object in the operator's log.
type objectKey struct{ kind, namespace, name string }

// maxAttempts bounds the requests for each accepted object.
const maxAttempts = 40

// changeObjects creates, updates and deletes objects until the API server has accepted the
// namespace's share of new objects of each kind.
func (env *fuzzTest) changeObjects(ctx context.Context, g generator, ns string) error {
	accepted := map[string]int{}
	share := minAccepted / namespaces
	for range maxAttempts * share * len(env.kinds) {
		k, complete := env.nextKind(g, accepted, share)
		if complete {
			return nil
		}
		created, err := env.changeOne(ctx, g, k, ns)
		if err != nil {
			return err
		}
		if created {
			accepted[k.Kind]++
		}
	}
	return nil
}

// nextKind returns a random kind of which objects are still missing.
func (env *fuzzTest) nextKind(g generator, accepted map[string]int, share int) (k *kind, complete bool) {
	var missing []*kind
	for i := range env.kinds {
		if accepted[env.kinds[i].Kind] < share {
			missing = append(missing, &env.kinds[i])
		}
	}
	if len(missing) == 0 {
		return nil, true
	}
	return pick(g, missing...), false
}

// changeOne creates an object, or changes or deletes one that may exist.
func (env *fuzzTest) changeOne(ctx context.Context, g generator, k *kind, ns string) (created bool, err error) {
	object := g.newObject(k, ns)
	env.countChange(objectKey{k.Kind, ns, object.GetName()})
	if g.chance(0.1) {
		policy := pick(g, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		return false, unexpectedError(k, env.Delete(ctx, object, client.PropagationPolicy(policy)))
	}
	err = env.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return false, unexpectedError(k, env.replace(ctx, object))
	}
	env.countRequest(k, err)
	return err == nil, unexpectedError(k, err)
}

// replace gives an existing object the metadata and the spec of another.
func (env *fuzzTest) replace(ctx context.Context, object *unstructured.Unstructured) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	if err := env.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return err
	}
	existing.Object["spec"] = object.Object["spec"]
	if object.Object["spec"] == nil {
		delete(existing.Object, "spec")
	}
	existing.SetLabels(object.GetLabels())
	existing.SetAnnotations(object.GetAnnotations())
	return env.Update(ctx, existing)
}

// unexpectedError returns an error unless the request was successful or its object was rejected.
func unexpectedError(k *kind, err error) error {
	switch {
	case err == nil, apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err),
		apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsRequestEntityTooLargeError(err):
		return nil
	default:
		return fmt.Errorf("%s: %w", k.Kind, err)
	}
}

// newObject returns an object with a random name, metadata and spec.
func (g generator) newObject(k *kind, ns string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(k.GroupVersionKind)
	object.SetNamespace(ns)
	object.SetName(g.objectName())
	metadata, _ := object.Object["metadata"].(map[string]any)
	if g.chance(0.1) {
		metadata["annotations"] = g.reservedMetadata()
	}
	if g.chance(0.1) {
		metadata["labels"] = g.reservedMetadata()
	}
	if k.spec == nil {
		return object
	}
	spec, _ := g.value(k.spec, "spec").(map[string]any)
	if g.chance(0.3) {
		g.mutate(spec)
	}
	object.Object["spec"] = spec
	return object
}

func (g generator) objectName() string {
	switch {
	case g.chance(0.3):
		return pick(g, sharedNames...)
	case g.chance(0.05):
		return pick(g, strings.Repeat("x", 52), strings.Repeat("x", 63), strings.Repeat("x", 253), "0a", "a.b-c.d", "yardmaster")
	default:
		return fmt.Sprintf("n%04d", g.IntN(10000))
	}
}

// countRequest counts the requests that created an object, and the rejections by their cause.
func (env *fuzzTest) countRequest(k *kind, err error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if err == nil {
		env.accepted[k.Kind]++
		return
	}
	env.rejected[k.Kind]++
	cause := err.Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		cause = cmp.Or(firstCause(status.Status()), cause)
	}
	env.causes[k.Kind+": "+cause[:min(len(cause), 150)]]++
}

func firstCause(s metav1.Status) string {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return ""
	}
	return s.Details.Causes[0].Field + ": " + s.Details.Causes[0].Message
}

func (env *fuzzTest) countChange(key objectKey) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.changes[key]++
}
