package integration

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

const mergePatch = types.MergePatchType

var background = context.Background()
