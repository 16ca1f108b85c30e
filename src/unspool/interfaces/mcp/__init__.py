"""The MCP door: tools and resources for agents, over stdio and over streamable HTTP. Importing
it does not import the SDK.
"""
