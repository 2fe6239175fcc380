"""Callbacks for other people's training loops: vedette.integrations.transformers and vedette.integrations.lightning."""
