package connection

import (
	"context"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/source"
)

func dialAsynq(ctx context.Context, access *Access) (broker.Engine, error) {
	a := source.Access{
		URL: access.URL, Username: access.Username, Password: access.Password, Token: access.Token, Name: clientName,
	}
	if len(access.CA)+len(access.Certificate)+len(access.Key) > 0 {
		a.TLS = &source.TLS{CA: access.CA, Certificate: access.Certificate, Key: access.Key}
	}
	engine, err := asynq.Connect(ctx, a)
	if err != nil {
		return nil, err // not the typed nil
	}
	return engine, nil
}
