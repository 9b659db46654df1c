package brokerconn

import (
	"context"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
)

func dialAsynq(ctx context.Context, access *Access) (broker.Engine, error) {
	engine, err := asynq.Connect(ctx, sourceAccess(access))
	if err != nil {
		return nil, err // not the typed nil
	}
	return engine, nil
}
