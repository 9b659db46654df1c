package crash

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func apply(ctx context.Context, cluster client.Client, object map[string]any) error {
	configuration := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: object})
	return cluster.Apply(ctx, configuration, client.FieldOwner("yardmaster-test"), client.ForceOwnership)
}
