package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// ApplyConfiguration returns the fields of an object that the operator applies. Missing rules of a NetworkPolicy become an
// explicit empty list: otherwise an apply would keep rules that somebody else added.
func ApplyConfiguration(object decision.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", object.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: raw}
	for _, path := range [][]string{{"metadata", "creationTimestamp"}, {"status"}, {"spec", "template", "metadata", "creationTimestamp"}} {
		unstructured.RemoveNestedField(raw, path...)
	}
	if spec, ok := raw["spec"].(map[string]any); ok && u.GetKind() == "NetworkPolicy" {
		for _, direction := range []string{"ingress", "egress"} {
			if spec[direction] == nil {
				spec[direction] = []any{}
			}
		}
	}
	return u, nil
}

// ApplyOwned applies an object for an owner of this kind. found is the object of the same name, nil if it does not exist: if
// isOwn rejects it, it is not changed. On success desired is the stored object.
func (c *Clients) ApplyOwned(
	ctx context.Context, desired *unstructured.Unstructured, found *metav1.PartialObjectMetadata, isOwn func(metav1.Object) bool, ownerKind string, manager client.FieldOwner,
) (*decision.Refusal, error) {
	refused := decision.Refusal{Kind: desired.GetKind(), Name: desired.GetName()}
	if found != nil && !isOwn(found) {
		return decision.NameTaken(refused, ownerKind), nil
	}
	return AsRefusal(c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), manager, client.ForceOwnership), refused)
}

// CreateOwned creates an object for its owner, or reads the object that an earlier reconciliation created. It refuses the name
// of an object of another owner. On success object is the stored object.
func (c *Clients) CreateOwned(
	ctx context.Context, object client.Object, owner metav1.Object, ownerKind string, refused decision.Refusal, options ...client.CreateOption,
) (isNew bool, _ *decision.Refusal, _ error) {
	err := c.Client.Create(ctx, object, options...)
	isNew = err == nil
	if apierrors.IsAlreadyExists(err) {
		err = c.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && !metav1.IsControlledBy(object, owner) {
			return false, decision.NameTaken(refused, ownerKind), nil
		}
	}
	refusal, err := AsRefusal(err, refused)
	return isNew, refusal, err
}
